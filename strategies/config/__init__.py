"""Strategies of the config level."""
