package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"adbuffer/internal/sspsim"
)

// SSP is a simulated SSP in a process of its own.
type SSP struct {
	Name    string
	Addr    string // host:port
	URL     string // URL for bid requests
	CAFile  string // path of the CA; "" without TLS
	PID     int
	control string
	child   *childProcess
}

// sspReply holds the addresses and the CA of a child.
type sspReply struct{ Addr, Control, CA string }

// SSPOptions are the options of a simulated SSP.
type SSPOptions struct {
	Name      string
	Protocol  sspsim.Protocol
	Behaviour sspsim.Behaviour
	Seed      uint64
	Cores     string
}

// StartSSP starts a simulated SSP.
func (r *Rig) StartSSP(o SSPOptions) (*SSP, error) {
	c, err := r.spawn("ssp", "ssp-"+safeName(o.Name), o.Cores, o)
	if err != nil {
		return nil, err
	}
	var a sspReply
	if err := c.read(&a, childTimeout); err != nil {
		return nil, err
	}
	s := &SSP{Name: o.Name, Addr: a.Addr, URL: "http://" + a.Addr + "/bid", PID: c.PID, control: a.Control, child: c}
	if a.CA != "" {
		s.URL = "https://" + a.Addr + "/bid"
		if s.CAFile, err = r.Write("ca-"+safeName(o.Name)+"-*.pem", a.CA); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// controlClient sends requests to the control endpoints of SSPs and to admin listeners.
var controlClient = &http.Client{Timeout: 10 * time.Second}

func (s *SSP) do(method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequest(method, s.control+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := controlClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("SSP %s: %s %s: %s: %s", s.Name, method, path, resp.Status, bytes.TrimSpace(b))
	}
	return b, err
}

// Counters returns the counters of the SSP.
func (s *SSP) Counters() (sspsim.Counters, error) {
	var c sspsim.Counters
	b, err := s.do("GET", "/counters", nil)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(b, &c)
}

// Patch changes those keys of the behaviour that the JSON contains.
func (s *SSP) Patch(behaviour []byte) error {
	_, err := s.do("PATCH", "/behaviour", behaviour)
	return err
}

// Set replaces the behaviour.
func (s *SSP) Set(b sspsim.Behaviour) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	_, err = s.do("PUT", "/behaviour", text)
	return err
}

// CloseConnections closes the open connections of the SSP.
func (s *SSP) CloseConnections() error {
	_, err := s.do("POST", "/close-connections", nil)
	return err
}

// Stop stops the process.
func (s *SSP) Stop() { s.child.Stop() }

// Constant is the upstream with the lowest cost, in a process of its own.
type Constant struct {
	*Process
	Addr string
	URL  string
}

// StartConstant starts an upstream whose responses have a body of this length.
func (r *Rig) StartConstant(body int, cores string) (*Constant, error) {
	c, err := r.spawn("constant", "constant", cores, body)
	if err != nil {
		return nil, err
	}
	var a sspReply
	err = c.read(&a, childTimeout)
	return &Constant{Process: c.Process, Addr: a.Addr, URL: "http://" + a.Addr + "/bid"}, err
}

func safeName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, strings.ToLower(s))
}
