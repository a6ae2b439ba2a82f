"""Strategies of the module level."""
