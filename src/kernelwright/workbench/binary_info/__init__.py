"""What a compiled kernel contains, executes and does, line by line."""
