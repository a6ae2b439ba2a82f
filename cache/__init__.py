"""Recorded outcomes that ship with autofix; see README.md beside this file."""
