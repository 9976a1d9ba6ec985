"""Durable background work: studies as DBOS workflows, heartbeats, take-over of dead executors' work."""
