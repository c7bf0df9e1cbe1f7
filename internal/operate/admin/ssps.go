package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
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
	Active           bool    `json:"active"`   // new requests are sent to the endpoint
	Unreachable      bool    `json:"unreachable"`
	Weight           int     `json:"weight"`
	ConfiguredWeight int     `json:"configured_weight"`
	Priority         int     `json:"priority"`
	Share            float64 `json:"share"` // share of the SSP's requests
	Connections      int     `json:"connections"`
	InFlight         int     `json:"in_flight"`
}

// Change is a change that an operator asks for. Either State or Weight is set.
type Change struct {
	State  string `json:"state,omitempty"`
	Weight *int   `json:"weight,omitempty"`
}

// SSPs lets operators list and change the SSPs of the service.
type SSPs interface {
	// States returns all SSPs with their endpoints.
	States() []SSPState
	// Change changes an SSP, or one of its endpoints. It returns an *UnknownError if the name is
	// unknown, and another error if the change is not possible.
	Change(ssp, endpoint string, c Change) error
}

// UnknownError says that no SSP, endpoint or route has the requested name.
type UnknownError struct {
	What, Name string
	Known      []string
}

// Error lists the existing names.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("no %s is called %q; there are %s", e.What, e.Name, strings.Join(e.Known, ", "))
}

// changeSSP handles PUT of a state or a weight; what is "state" or "weight". It logs each change with the operator's
// address.
func (s *Server) changeSSP(what string) func(*http.Request) (any, error) {
	usage := `send {"state":"enabled"}, {"state":"draining"} or {"state":"disabled"}`
	if what == "weight" {
		usage = `send {"weight":3}`
	}
	return func(r *http.Request) (any, error) {
		body, err := readBody(r, maxChangeBytes, fmt.Sprintf("the body is longer than %d bytes; %s", maxChangeBytes, usage))
		if err != nil {
			return nil, err
		}
		var c Change
		if json.Unmarshal(body, &c) != nil || (c.State != "") != (what == "state") || (c.Weight != nil) != (what == "weight") {
			return nil, badRequest("%s", usage)
		}
		ssp, endpoint := r.PathValue("ssp"), r.PathValue("endpoint")
		_, before := s.stateOf(ssp, endpoint, what)
		err = s.opts.SSPs.Change(ssp, endpoint, c)
		if errors.As(err, new(*UnknownError)) {
			return nil, err
		} else if err != nil {
			return nil, badRequest("%v", err)
		}
		state, now := s.stateOf(ssp, endpoint, what)
		if state == nil {
			return nil, &refusal{http.StatusNotFound, "a reload has just removed the SSP or the endpoint"}
		}
		s.opts.Log.Warn("an operator changed an SSP", zap.String("ssp", ssp), zap.String("endpoint", endpoint), zap.String("changed", what),
			zap.String("before", before), zap.String("now", now), zap.String("by", r.RemoteAddr))
		return state, nil
	}
}

// stateOf returns the EndpointState of endpoint, or the SSPState of ssp if endpoint is "". shown is the text of its state,
// or of its weight if what is "weight". state is nil if no SSP or endpoint has the name.
func (s *Server) stateOf(ssp, endpoint, what string) (state any, shown string) {
	all := s.opts.SSPs.States()
	i := slices.IndexFunc(all, func(one SSPState) bool { return one.SSP == ssp })
	if i < 0 {
		return nil, ""
	}
	if endpoint == "" {
		return all[i], all[i].State
	}
	for _, e := range all[i].Endpoints {
		switch {
		case e.Endpoint != endpoint:
		case what == "weight":
			return e, strconv.Itoa(e.Weight)
		default:
			return e, e.State
		}
	}
	return nil, ""
}
