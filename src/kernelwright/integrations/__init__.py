"""Kernelwright's operators in other libraries' models; each is imported only when used."""
