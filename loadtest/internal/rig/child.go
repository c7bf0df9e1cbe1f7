package rig

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
)

// childEnv marks a process that this one started from its own executable.
const childEnv = "ADBUFFER_LOADTEST_CHILD"

// ChildMain runs a child's part and ends the process, if this process is one;
// otherwise it returns at once. Every main, and every TestMain whose tests start
// SSPs, calls it first.
func ChildMain() {
	role := os.Getenv(childEnv)
	if role == "" {
		return
	}
	if err := child(role, os.Stdin, os.Stdout); err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(reply{Error: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

// order is what a child is told, in one line of JSON.
type order struct {
	Protocol  sspsim.Protocol  `json:"protocol"`
	Behaviour sspsim.Behaviour `json:"behaviour"`
	Seed      uint64           `json:"seed"`
	Body      int              `json:"body"` // of the constant upstream, in bytes
}

// reply is what a child answers, in one line of JSON.
type reply struct {
	Addr    string `json:"addr"`
	Control string `json:"control"`
	CA      string `json:"ca"`
	Error   string `json:"error"`
}

// stats is what the constant upstream answers to every further line.
type stats struct {
	Connections uint64 `json:"connections"`
	Requests    uint64 `json:"requests"`
}

// child plays role until in ends.
func child(role string, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadString('\n')
	if err != nil {
		return fmt.Errorf("no order: %w", err)
	}
	var o order
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		return err
	}
	answer := json.NewEncoder(out)
	switch role {
	case "ssp":
		s, err := sspsim.Start(sspsim.Options{Control: "127.0.0.1:0", Protocol: o.Protocol, Behaviour: o.Behaviour, Seed: o.Seed})
		if err != nil {
			return err
		}
		if err := answer.Encode(reply{Addr: s.Addr(), Control: s.ControlURL(), CA: string(s.CAPEM())}); err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, lines)
		return s.Close()
	case "constant":
		s, err := load.StartConstant("127.0.0.1:0", load.ConstantBody(o.Body))
		if err != nil {
			return err
		}
		if err := answer.Encode(reply{Addr: s.Addr()}); err != nil {
			return err
		}
		for {
			if _, err := lines.ReadString('\n'); err != nil {
				return nil // the parent has closed the pipe; the process ends
			}
			if err := answer.Encode(stats{s.Connections(), s.Requests()}); err != nil {
				return err
			}
		}
	case "holder":
		return hold(line, answer, lines)
	case "generator":
		return generate(line, answer, lines)
	}
	return fmt.Errorf("no such part: %q", role)
}

// childTimeout bounds a child's start.
const childTimeout = 20 * time.Second

// spawn starts a child with an order and returns its reply.
func (r *Rig) spawn(role, name, cores string, o any) (*childProcess, error) {
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
	p, err := r.startWith(Command{Name: name, Argv: []string{self}, Env: []string{childEnv + "=" + role}, Cores: cores, Stdin: inRead}, outWrite)
	if err != nil {
		inWrite.Close()
		outRead.Close()
		return nil, err
	}
	p.pipes = []*os.File{inWrite, outRead}
	c := &childProcess{Process: p, in: inWrite, out: bufio.NewReader(outRead), pipe: outRead}
	if err := json.NewEncoder(inWrite).Encode(o); err != nil {
		return nil, err
	}
	return c, nil
}

// childProcess is a child and the pipes to it.
type childProcess struct {
	*Process
	in   *os.File
	out  *bufio.Reader
	pipe *os.File
}

// read reads one line of JSON from the child, within a usual answer's time.
func (c *childProcess) read(v any) error { return c.readWithin(v, childTimeout) }

func (c *childProcess) readWithin(v any, timeout time.Duration) error {
	_ = c.pipe.SetReadDeadline(time.Now().Add(timeout))
	line, err := c.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s: %w: %s", c.Name, err, strings.TrimSpace(string(c.Log())))
	}
	return json.Unmarshal([]byte(line), v)
}

// awaitReply reads the first answer.
func (c *childProcess) awaitReply() (reply, error) {
	var a reply
	if err := c.read(&a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", c.Name, a.Error)
	}
	return a, nil
}
