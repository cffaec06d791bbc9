package collective

// Select says which backend carries out a call of all ranks on such a tensor, and logs it
// with the reason: for programs that have a vendor's library besides this group. It asks
// nobody, and all ranks get the same for the same tensor. The rules, the first that holds:
//
//   - Offer.Force;
//   - Config.Deterministic: CPU;
//   - a tensor on a device: its vendor's library if all ranks have it, else CPU, over the host;
//   - a tensor in memory of the host: CPU, unless two copies over the bus and the call on the
//     devices take less time than the call on the hosts, by what the group has measured.
//
// Errors wrap ErrArgument: a *BackendError where what is forced cannot be.
func (g *Group) Select(c Collective, t Tensor) (Choice, error) {
	if c == 0 || c >= pointToPoint {
		return Choice{}, argument("no operation %v", c)
	}
	return g.selectFor(c, t)
}

// SelectMessage is Select for a message to one rank: a tensor on a device goes by its
// vendor's library if all ranks have it, one in memory of the host by Send, where more than
// 4 MiB take turns on Config.Streams connections.
func (g *Group) SelectMessage(t Tensor) (Choice, error) { return g.selectFor(pointToPoint, t) }

func (g *Group) selectFor(c Collective, t Tensor) (Choice, error) {
	switch {
	case t.Type == 0 || t.Type >= typeEnd:
		return Choice{}, argument("tensor of %v, must be of a type that there is", t.Type)
	case t.Len < 0:
		return Choice{}, argument("tensor of %d elements, must not be negative", t.Len)
	case t.Device != 0 && !t.Device.vendor():
		return Choice{}, argument("tensor on a device of %v, must be a vendor's backend", t.Device)
	}
	choice, err := g.bargain.choose(c, t, &g.model, g.cfg.Deterministic)
	if err == nil {
		g.log.Info("collective: backend", "call", c, "type", t.Type, "elements", t.Len, "backend", choice.Backend, "reason", choice.Reason)
	}
	return choice, err
}
