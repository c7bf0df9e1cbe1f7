package adminview

import (
	"fmt"

	"adbuffer/internal/operate/admin"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/balancer"
)

// States implements admin.SSPs.
func (v *Views) States() []admin.SSPState {
	var all []admin.SSPState
	v.versions.Look(func(current *reload.Version) {
		for _, p := range current.Parts {
			snap := p.SSP.Pool().Snapshot()
			s := admin.SSPState{SSP: snap.SSP, State: snap.State, Endpoints: make([]admin.EndpointState, len(snap.Endpoints))}
			for i := range snap.Endpoints {
				e := &snap.Endpoints[i]
				s.Endpoints[i] = admin.EndpointState{
					SSP: snap.SSP, Endpoint: e.Endpoint, State: e.State, Active: e.Active, Unreachable: e.Unreachable, Weight: e.Weight, ConfiguredWeight: e.ConfiguredWeight,
					Priority: e.Priority, Share: e.Share, Connections: e.Connections, InFlight: e.InFlight,
				}
			}
			all = append(all, s)
		}
	})
	return all
}

// Change implements admin.SSPs. No reload can lose the change: no reload swaps versions during Look, and a
// later reload inherits the change.
func (v *Views) Change(ssp, endpoint string, c admin.Change) (err error) {
	v.versions.Look(func(current *reload.Version) { err = change(current, ssp, endpoint, c) })
	return err
}

// partNamed returns the SSP of that name, or an *admin.UnknownError.
func partNamed(current *reload.Version, name string) (*reload.Part, error) {
	if part := current.Part(name); part != nil {
		return part, nil
	}
	unknown := &admin.UnknownError{What: "SSP", Name: name}
	for _, p := range current.Parts {
		unknown.Known = append(unknown.Known, p.Config.Name)
	}
	return nil, unknown
}

func change(current *reload.Version, ssp, endpoint string, c admin.Change) error {
	part, err := partNamed(current, ssp)
	if err != nil {
		return err
	}
	p, known := part.SSP.Pool(), true
	switch {
	case c.Weight != nil && (*c.Weight < 1 || *c.Weight > balancer.MaxWeight):
		return fmt.Errorf("weight %d must be from 1 to %d; drain or disable an endpoint that must get no requests", *c.Weight, balancer.MaxWeight)
	case c.Weight != nil:
		known = p.SetEndpointWeight(endpoint, *c.Weight)
	default:
		state, err := balancer.ParseState(c.State)
		if err != nil {
			return err
		}
		if endpoint == "" {
			p.SetState(state)
		} else {
			known = p.SetEndpointState(endpoint, state)
		}
	}
	if known {
		return nil
	}
	unknown := &admin.UnknownError{What: "endpoint of " + ssp, Name: endpoint}
	for _, e := range p.Options().Endpoints {
		unknown.Known = append(unknown.Known, e.Name)
	}
	return unknown
}
