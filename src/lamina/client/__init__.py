"""Talking to a server: ``lamina.client.workq`` for jobs."""
