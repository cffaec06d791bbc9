package actor_test

import (
	"context"
	"fmt"

	"github.com/elasticps/elasticps/actor"
)

type hello struct{ Who string }

// Two nodes of one cluster; here in one program, which is written as if they were in two.
func Example() {
	ctx := context.Background()
	const secret = "shared by all nodes"

	server, err := actor.Start(ctx, actor.Config{Name: "server", Secret: secret})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client, err := actor.Start(ctx, actor.Config{Name: "client", Secret: secret})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for _, n := range []*actor.Node{server, client} {
		if err := n.Register("example.hello", hello{}); err != nil {
			fmt.Println(err)
			return
		}
	}

	greeter := actor.ActorFunc(func(c *actor.Context, msg any) error {
		h, err := actor.As[hello](msg)
		if err != nil {
			c.Fail(err)
			return nil
		}
		c.Reply("hello " + h.Who)
		return nil
	})
	if _, err := server.Spawn(ctx, "greeter", greeter, actor.Options{}); err != nil {
		fmt.Println(err)
		return
	}

	if _, err := client.Connect(ctx, server.Addr()); err != nil {
		fmt.Println(err)
		return
	}
	greeting, err := actor.Call[string](ctx, client, actor.Ref{Node: "server", Name: "greeter"}, hello{Who: "world"})
	fmt.Println(greeting, err)
	// Output: hello world <nil>
}
