package ps

// Connections is the number of data connections that the client holds open.
func (c *Client) Connections() int {
	n := 0
	for _, l := range c.appendLinks(nil) {
		if l.conn.Err() == nil {
			n++
		}
	}
	return n
}
