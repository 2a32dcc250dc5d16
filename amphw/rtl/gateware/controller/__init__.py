"""The controller, and what it counts and keeps: joins, routes, queues, and when parameters are updated."""
