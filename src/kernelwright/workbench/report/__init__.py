"""The HTML report and its charts."""
