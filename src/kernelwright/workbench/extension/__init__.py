"""A project of the user's own around one CUDA C++ rung, built in five ways."""
