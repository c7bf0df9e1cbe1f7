package rig

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"adbuffer/internal/test/sspsim"
)

// SimulatedSSP is a simulated SSP in a process of its own.
type SimulatedSSP struct {
	*Process
	Addr    string // host:port
	URL     string // URL for bid requests
	CAFile  string // path of the CA; "" without TLS
	control string
}

// sspReply holds the addresses and the CA of a child.
type sspReply struct{ Addr, Control, CA string }

// simulation is the order to simulate an SSP.
type simulation struct {
	Protocol  sspsim.Protocol
	Behaviour sspsim.Behaviour
	Seed      uint64
}

func simulate(o simulation, reply func(any) error) error {
	s, err := sspsim.Start(sspsim.Options{Control: "127.0.0.1:0", Protocol: o.Protocol, Behaviour: o.Behaviour, Seed: o.Seed})
	if err != nil {
		return err
	}
	if err := reply(sspReply{Addr: s.Addr(), Control: s.ControlURL(), CA: string(s.CA().PEM())}); err != nil {
		return err
	}
	select {}
}

func (r *Rig) startSSP(name, cores string, o simulation) *SimulatedSSP {
	name = "ssp-" + url.PathEscape(name) // a scenario chooses it
	c := r.spawn("ssp", Command{Name: name, Cores: cores}, o)
	defer c.pipe.Close()
	var a sspReply
	r.Check(c.read(&a, childTimeout))
	s := &SimulatedSSP{Process: c.Process, Addr: a.Addr, URL: "http://" + a.Addr + "/bid", control: a.Control}
	if a.CA != "" {
		s.URL, s.CAFile = "https://"+a.Addr+"/bid", r.Write("ca-"+name+"-*.pem", a.CA)
	}
	return s
}

// controlClient sends requests to the control endpoints of SSPs, to admin listeners and to Prometheus.
// Admin listeners of a test have certificates that nobody knows.
var controlClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// do sends a request to the control endpoint, and returns the body of the response.
func (s *SimulatedSSP) do(method, path string, body []byte) []byte {
	b, err := ask(method, s.control+path, body)
	if err != nil {
		s.rig.Check(fmt.Errorf("SSP %s: %w", s.Name, err))
	}
	return b
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
func (s *SimulatedSSP) Counters() (c sspsim.Counters) {
	s.rig.Check(json.Unmarshal(s.do("GET", "/counters", nil), &c))
	return c
}

// Patch changes those keys of the behaviour that the JSON contains.
func (s *SimulatedSSP) Patch(behaviour []byte) { s.do("PATCH", "/behaviour", behaviour) }

// Set replaces the behaviour.
func (s *SimulatedSSP) Set(b sspsim.Behaviour) {
	s.do("PUT", "/behaviour", Must(json.Marshal(b))(s.rig))
}

// CloseConnections closes the open connections of the SSP.
func (s *SimulatedSSP) CloseConnections() { s.do("POST", "/close-connections", nil) }
