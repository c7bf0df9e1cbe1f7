package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// maxChangeBytes bounds the body of a change.
const maxChangeBytes = 1024

// SSPState is the state of an SSP, with the settings that operators can change.
type SSPState struct {
	SSP       string          `json:"ssp"`
	State     string          `json:"state"` // enabled, draining or disabled
	Endpoints []EndpointState `json:"endpoints"`
}

// EndpointState is the state of an endpoint, with the settings that operators can change.
type EndpointState struct {
	SSP              string  `json:"ssp"`
	Endpoint         string  `json:"endpoint"` // host:port
	State            string  `json:"state"`    // disabled, draining, ejected, unhealthy or enabled
	Active           bool    `json:"active"`   // new requests go to it
	Unreachable      bool    `json:"unreachable"`
	Weight           int     `json:"weight"`
	ConfiguredWeight int     `json:"configured_weight"`
	Priority         int     `json:"priority"`
	Share            float64 `json:"share"` // of the SSP's requests
	Connections      int     `json:"connections"`
	InFlight         int     `json:"in_flight"`
}

// Change is what an operator asks for. State or Weight is set.
type Change struct {
	State  string `json:"state,omitempty"`
	Weight *int   `json:"weight,omitempty"`
}

// SSPs are the SSPs of the service, as operators list and change them.
type SSPs interface {
	// States returns all SSPs with their endpoints.
	States() []SSPState
	// Change changes an SSP, or one of its endpoints. It returns an *UnknownError if the name is
	// unknown, and another error if the change is not possible.
	Change(ssp, endpoint string, c Change) error
}

// UnknownError says that no SSP or endpoint has the requested name.
type UnknownError struct {
	What, Name string
	Known      []string
}

// Error lists the existing names.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("no %s is called %q; there are %s", e.What, e.Name, strings.Join(e.Known, ", "))
}

func (s *Server) listSSPs(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.opts.SSPs.States()) }

// changeSSP handles PUT of a state or a weight. It logs each change with the operator's address.
func (s *Server) changeSSP(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := readChange(w, r, what)
		if err != nil {
			text(w, http.StatusBadRequest, err.Error())
			return
		}
		ssp, endpoint := r.PathValue("ssp"), r.PathValue("endpoint")
		before, _ := s.stateOf(ssp, endpoint)
		switch err := s.opts.SSPs.Change(ssp, endpoint, c); err.(type) { //nolint:errorlint // Change does not wrap it
		case nil:
		case *UnknownError:
			text(w, http.StatusNotFound, err.Error())
			return
		default:
			text(w, http.StatusBadRequest, err.Error())
			return
		}
		now, ok := s.stateOf(ssp, endpoint)
		if !ok {
			text(w, http.StatusNotFound, "a reload has just removed it")
			return
		}
		s.opts.Log.Warn("an operator changed an SSP", zap.String("ssp", ssp), zap.String("endpoint", endpoint), zap.String("changed", what),
			zap.String("before", shown(before, what)), zap.String("now", shown(now, what)), zap.String("by", r.RemoteAddr))
		writeJSON(w, now)
	}
}

func readChange(w http.ResponseWriter, r *http.Request, what string) (c Change, err error) {
	const states, weights = `send {"state":"enabled"}, {"state":"draining"} or {"state":"disabled"}`, `send {"weight":3}`
	rule := map[string]string{"state": states, "weight": weights}[what]
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxChangeBytes))
	if err != nil {
		return c, fmt.Errorf("the body is longer than %d bytes; %s", maxChangeBytes, rule)
	}
	if json.Unmarshal(body, &c) != nil || (c.State != "") != (what == "state") || (c.Weight != nil) != (what == "weight") {
		return c, fmt.Errorf("%s", rule)
	}
	return c, nil
}

// stateOf returns an SSPState, or the EndpointState if endpoint is set.
func (s *Server) stateOf(ssp, endpoint string) (any, bool) {
	for _, state := range s.opts.SSPs.States() {
		if state.SSP != ssp {
			continue
		}
		if endpoint == "" {
			return state, true
		}
		if i := slices.IndexFunc(state.Endpoints, func(e EndpointState) bool { return e.Endpoint == endpoint }); i >= 0 {
			return state.Endpoints[i], true
		}
	}
	return nil, false
}

func shown(state any, what string) string {
	switch v := state.(type) {
	case SSPState:
		return v.State
	case EndpointState:
		if what == "weight" {
			return fmt.Sprint(v.Weight)
		}
		return v.State
	}
	return ""
}
