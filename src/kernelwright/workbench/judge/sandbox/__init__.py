"""The process that runs the judged kernel, and the process that checks it."""
