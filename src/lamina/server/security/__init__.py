"""Who may come in, and what they may do there: users, rights, tokens, certificates and what is open to whom."""
