"""What the commands print: tables and texts for the terminal."""
