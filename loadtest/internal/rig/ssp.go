package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"adbuffer/internal/sspsim"
)

// SSP is a simulated SSP in a process of its own.
type SSP struct {
	*Process
	Name    string
	Addr    string // host:port
	URL     string // URL for bid requests
	CAFile  string // path of the CA; "" without TLS
	control string
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

// simulate is the role of an SSP.
func simulate(o SSPOptions, reply func(any) error) error {
	s, err := sspsim.Start(sspsim.Options{Control: "127.0.0.1:0", Protocol: o.Protocol, Behaviour: o.Behaviour, Seed: o.Seed})
	if err != nil {
		return err
	}
	if err := reply(sspReply{Addr: s.Addr(), Control: s.ControlURL(), CA: string(s.CA().PEM())}); err != nil {
		return err
	}
	select {}
}

// StartSSP starts a simulated SSP.
func (r *Rig) StartSSP(o SSPOptions) (*SSP, error) {
	file := url.PathEscape(o.Name) // a scenario chooses the name
	c, err := r.spawn("ssp", Command{Name: "ssp-" + file, Cores: o.Cores}, o)
	if err != nil {
		return nil, err
	}
	defer c.pipe.Close()
	var a sspReply
	if err := c.read(&a, childTimeout); err != nil {
		return nil, err
	}
	s := &SSP{Process: c.Process, Name: o.Name, Addr: a.Addr, URL: "http://" + a.Addr + "/bid", control: a.Control}
	if a.CA != "" {
		s.URL = "https://" + a.Addr + "/bid"
		s.CAFile, err = r.Write("ca-"+file+"-*.pem", a.CA)
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// controlClient sends requests to the control endpoints of SSPs, to admin listeners and to Prometheus.
var controlClient = &http.Client{Timeout: 10 * time.Second}

func (s *SSP) do(method, path string, body []byte) ([]byte, error) {
	b, err := ask(method, s.control+path, body)
	if err != nil {
		err = fmt.Errorf("SSP %s: %w", s.Name, err)
	}
	return b, err
}

// ask sends a request and returns the body of the response. A status other than 2xx is an error.
func ask(method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
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
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, bytes.TrimSpace(b))
	}
	return b, err
}

// GetJSON decodes the JSON that url returns.
func GetJSON(url string, v any) error {
	b, err := ask("GET", url, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
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
