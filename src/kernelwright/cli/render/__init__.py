"""The output of the commands: tables and texts for the terminal."""
