package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
)

// childEnv names the role of a child: a process that runs the same executable as its parent.
const childEnv = "ADBUFFER_LOADTEST_CHILD"

// A role receives an order as one line of JSON and replies with lines of JSON. The context ends when
// the parent closes the pipe.
var roles = map[string]func(ctx context.Context, order []byte, reply func(any) error) error{
	"ssp": role(func(ctx context.Context, o SSPOptions, reply func(any) error) error {
		s, err := sspsim.Start(sspsim.Options{Control: "127.0.0.1:0", Protocol: o.Protocol, Behaviour: o.Behaviour, Seed: o.Seed})
		if err != nil {
			return err
		}
		if err := reply(sspReply{Addr: s.Addr(), Control: s.ControlURL(), CA: string(s.CA().PEM())}); err != nil {
			return err
		}
		<-ctx.Done()
		return s.Close()
	}),
	"constant": role(func(ctx context.Context, body int, reply func(any) error) error {
		s, err := load.StartConstant("127.0.0.1:0", load.ConstantBody(body))
		if err != nil {
			return err
		}
		defer s.Close()
		if err := reply(sspReply{Addr: s.Addr()}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}),
	"holder":       role(hold),
	"generator":    role(generate),
	"reverseproxy": role(reverseProxy),
	"sketch":       role(sketch),
}

func role[T any](play func(ctx context.Context, order T, reply func(any) error) error) func(context.Context, []byte, func(any) error) error {
	return func(ctx context.Context, text []byte, reply func(any) error) error {
		var order T
		if err := json.Unmarshal(text, &order); err != nil {
			return err
		}
		return play(ctx, order, reply)
	}
}

// ChildMain plays the role of a child and exits. In a process that is no child it returns at once.
// Every main, and every TestMain whose tests start SSPs, calls it first. A child writes its error to
// its log, and the error of its parent quotes that log.
func ChildMain() {
	name := os.Getenv(childEnv)
	if name == "" {
		return
	}
	if err := play(name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(name string) error {
	lines := bufio.NewReader(os.Stdin)
	order, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("no order: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		cancel()
	}()
	play, ok := roles[name]
	if !ok {
		return fmt.Errorf("no such role: %q", name)
	}
	return play(ctx, order, json.NewEncoder(os.Stdout).Encode)
}

// childTimeout bounds the start of a child.
const childTimeout = 20 * time.Second

// childProcess is a child and its pipes.
type childProcess struct {
	*Process
	in   *os.File
	out  *json.Decoder // of pipe
	pipe *os.File
}

// spawn starts a child with the name, the cores and the environment of c, and sends it an order.
func (r *Rig) spawn(role string, c Command, order any) (*childProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inRead.Close()
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		inWrite.Close()
		return nil, err
	}
	defer outWrite.Close()
	c.Argv, c.Env, c.Stdin, c.stdout = []string{self}, append(c.Env, childEnv+"="+role), inRead, outWrite
	p, err := r.Start(c)
	if err != nil {
		inWrite.Close()
		outRead.Close()
		return nil, err
	}
	p.pipes = []*os.File{inWrite, outRead}
	return &childProcess{Process: p, in: inWrite, out: json.NewDecoder(outRead), pipe: outRead}, json.NewEncoder(inWrite).Encode(order)
}

// read reads one reply.
func (c *childProcess) read(v any, timeout time.Duration) error {
	_ = c.pipe.SetReadDeadline(time.Now().Add(timeout))
	if err := c.out.Decode(v); err != nil {
		return fmt.Errorf("%s: %w: %s", c.Name, err, strings.TrimSpace(string(c.Log())))
	}
	return nil
}

// generatorOrder is the order to a generator.
type generatorOrder struct {
	Plan  load.Plan
	Watch bool // also reply with progress after each interval
}

// generated is a reply of a generator: its progress, and in the last reply its result.
type generated struct {
	Progress *load.Progress
	Result   *load.Result
	Error    string // Result then holds the measurements until the error
}

func generate(ctx context.Context, o generatorOrder, reply func(any) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runtime.GOMAXPROCS(max(1, o.Plan.Threads) + 1) // one more makes requests due
	var report func(load.Progress)
	if o.Watch {
		report = func(p load.Progress) {
			if reply(generated{Progress: &p}) != nil {
				cancel() // the parent has closed the pipe
			}
		}
	}
	r, err := load.Run(ctx, o.Plan, report)
	out := generated{Result: r}
	if err != nil {
		out.Error = err.Error()
	}
	return reply(out)
}

// Generate executes a plan in a process of its own. It calls watch, which may be nil, after each
// interval. When ctx ends, the load ends, and Generate returns the measurements until then.
func (r *Rig) Generate(ctx context.Context, plan load.Plan, cores string, watch func(load.Progress)) (*load.Result, error) {
	c, err := r.spawn("generator", Command{Name: "generator", Cores: cores}, generatorOrder{plan, watch != nil})
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	stop := context.AfterFunc(ctx, func() { c.in.Close() })
	defer stop()
	length := plan.Timeout + time.Minute
	for _, p := range plan.Phases {
		length += p.Duration
	}
	for end := time.Now().Add(length); ; {
		var g generated
		if err := c.read(&g, time.Until(end)); err != nil {
			return nil, err
		}
		switch {
		case g.Error != "":
			return g.Result, errors.New(g.Error)
		case g.Progress == nil:
			return g.Result, nil
		case watch != nil:
			watch(*g.Progress)
		}
	}
}
