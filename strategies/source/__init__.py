"""Strategies of the source level."""
