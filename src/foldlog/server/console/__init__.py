"""The console's back end: what the page reads and requests, as JSON and as a stream of events. Starts in `site`."""
