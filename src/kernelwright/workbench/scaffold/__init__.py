"""Starting a new operator from templates."""
