package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
)

// childEnv makes a process a child: it runs the same executable as its parent. Its value is a role, a space,
// and the path of the order, which is JSON.
const childEnv = "ADBUFFER_LOADTEST_CHILD"

// A role executes an order and replies with lines of JSON. A child runs until it is stopped.
var roles = map[string]func(order []byte, reply func(any) error) error{
	"ssp":          role(simulate),
	"generator":    role(generate),
	"constant":     role(constant),
	"reverseproxy": role(reverseProxy),
	"sketch":       role(sketch),
}

func role[T any](play func(order T, reply func(any) error) error) func([]byte, func(any) error) error {
	return func(text []byte, reply func(any) error) error {
		var order T
		if err := json.Unmarshal(text, &order); err != nil {
			return err
		}
		return play(order, reply)
	}
}

// ChildMain plays the role of a child and exits. In a process that is not a child, ChildMain returns at once.
// Every main, and every TestMain whose tests start SSPs, calls it first. A child writes its error to
// its log, and the error of its parent quotes that log.
func ChildMain() {
	name, file, isChild := strings.Cut(os.Getenv(childEnv), " ")
	if !isChild {
		return
	}
	order, err := os.ReadFile(file)
	if err == nil {
		err = roles[name](order, json.NewEncoder(os.Stdout).Encode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childTimeout bounds the start of a child.
const childTimeout = 20 * time.Second

// childProcess is a child and its replies.
type childProcess struct {
	*Process
	pipe    *os.File // the caller of spawn closes it
	replies *json.Decoder
}

// spawn starts a child with the name, the cores and the environment of c, and gives it an order.
func (r *Rig) spawn(role string, c Command, order any) *childProcess {
	self := Must(os.Executable())(r)
	file := r.Write(role+"-*.json", string(Must(json.Marshal(order))(r)))
	pipe, stdout, err := os.Pipe()
	r.Check(err)
	defer stdout.Close()
	c.Argv, c.Env, c.stdout = []string{self}, append(c.Env, childEnv+"="+role+" "+file), stdout
	return &childProcess{Process: r.StartProcess(c), pipe: pipe, replies: json.NewDecoder(pipe)}
}

func (c *childProcess) read(v any, timeout time.Duration) error {
	_ = c.pipe.SetReadDeadline(time.Now().Add(timeout))
	if err := c.replies.Decode(v); err != nil {
		return fmt.Errorf("%s: %w: %s", c.Name, err, strings.TrimSpace(string(c.Log())))
	}
	return nil
}

// generated is a reply of a generator: its progress, or at the end its result.
type generated struct {
	Progress *load.Progress
	Result   *load.Result
}

func generate(plan load.Plan, reply func(any) error) error {
	runtime.GOMAXPROCS(2)                                                                                        // the second thread makes requests due
	r, err := load.Run(context.Background(), plan, func(p load.Progress) { _ = reply(generated{Progress: &p}) }) // SIGPIPE ends it
	if err != nil {
		return err
	}
	return reply(generated{Result: r})
}

// Generate executes a plan in a process of its own. It calls watch, which may be nil, after each interval.
func (r *Rig) Generate(plan load.Plan, watch func(load.Progress)) (*load.Result, error) {
	c := r.spawn("generator", Command{Name: "generator", Cores: r.LoadCores}, plan)
	defer c.pipe.Close()
	defer c.Stop()
	defer context.AfterFunc(r.Ctx, c.Stop)()
	length := plan.Timeout + time.Minute
	for _, p := range plan.Phases {
		length += p.Duration
	}
	for end := time.Now().Add(length); ; {
		var g generated
		if err := c.read(&g, time.Until(end)); err != nil {
			return nil, err
		}
		if g.Progress == nil {
			return g.Result, nil
		}
		if watch != nil {
			watch(*g.Progress)
		}
	}
}
