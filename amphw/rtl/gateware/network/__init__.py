"""The link over Ethernet: frames at a PHY, addresses, and datagrams in sessions."""
