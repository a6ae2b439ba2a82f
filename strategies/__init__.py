"""Strategies that ship with autofix, one a file, in folders by level."""
