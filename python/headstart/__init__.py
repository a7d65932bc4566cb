"""Headstart's Python side."""
