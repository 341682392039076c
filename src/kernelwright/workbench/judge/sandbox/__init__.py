"""The process that runs the judged kernel, and the code of the judge that talks to it."""
