"""Strategies of the program level."""
