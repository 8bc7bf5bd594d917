"""TLS of listeners: settings, certificates, who they name, and the transport."""
