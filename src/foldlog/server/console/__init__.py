"""The console's back end: what the page reads and asks for, as JSON and as a stream of events. `site` is the way in."""
