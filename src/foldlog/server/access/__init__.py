"""How a broker on its sockets learns who asks: logins by SASL, and what a failed one costs."""
