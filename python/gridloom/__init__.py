"""Gridloom."""
