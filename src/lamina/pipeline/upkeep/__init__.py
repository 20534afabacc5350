"""Cleaning the jobs and dumping the queues, divided into tasks."""
