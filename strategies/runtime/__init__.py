"""Strategies of the runtime level."""
