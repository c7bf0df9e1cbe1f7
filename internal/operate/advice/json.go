package advice

import (
	"encoding/json"
	"io"
)

// plannedJSON is one SSP of plan --json. Times are in seconds, shares from 0 to 1. Fields without
// "total" in their name are per replica.
type plannedJSON struct {
	SSP              string   `json:"ssp"`
	Protocol         string   `json:"protocol"`
	Replicas         int      `json:"replicas"`
	RPS              float64  `json:"rps"`
	HoldSeconds      float64  `json:"hold_seconds"`
	Load             float64  `json:"load"`                  // L
	PeakInUse        int      `json:"peak_in_use,omitempty"` // most places in use at once; absent = unknown
	Places           int      `json:"places"`                // exact Erlang C, or more for the peak
	RulePlaces       float64  `json:"rule_places"`           // L + 2·√L
	WaitingShare     float64  `json:"waiting_share"`
	MeanWaitSeconds  float64  `json:"mean_wait_seconds"`
	Saturation       float64  `json:"saturation"` // L / places, the mean share of places in use
	FullRPS          float64  `json:"full_rps"`
	SlowHoldSeconds  float64  `json:"slow_hold_seconds"`
	SlowFullRPS      float64  `json:"slow_full_rps"`
	RuleSlowFullRPS  float64  `json:"rule_slow_full_rps"`
	Streams          int      `json:"streams"`
	HTTP2Conns       int      `json:"http2_conns"`       // at least
	HTTP2GrownConns  int      `json:"http2_grown_conns"` // the lowest max_http2_conns with which no connection is more than half full
	FileDescriptors  int      `json:"file_descriptors"`
	PortsPerAddress  int      `json:"ports_per_address"`
	TotalRPS         float64  `json:"total_rps"`
	TotalPlaces      int      `json:"total_places"`
	TotalHTTP2Conns  int      `json:"total_http2_conns"`
	TotalSlowFullRPS float64  `json:"total_slow_full_rps"`
	Setting          string   `json:"setting"` // a key of pool
	Value            int      `json:"value"`
	Now              int      `json:"now,omitempty"`
	Warnings         []string `json:"warnings"`
}

// WriteJSON prints the plan for programs.
func (plan Plan) WriteJSON(w io.Writer) error {
	all := make([]plannedJSON, len(plan))
	for i := range plan {
		p, r := &plan[i], &plan[i].result
		name, n := p.sizeSetting()
		all[i] = plannedJSON{
			SSP: p.name, Protocol: p.protocol, Replicas: p.in.Replicas, RPS: r.Rate, HoldSeconds: r.MeanHold.Seconds(), Load: r.Load, PeakInUse: p.in.Peak,
			Places: r.Places, RulePlaces: r.RulePlaces, WaitingShare: r.WaitingShare, MeanWaitSeconds: r.MeanWait.Seconds(), Saturation: r.Saturation,
			FullRPS: r.FullRate, SlowHoldSeconds: r.SlowHold.Seconds(), SlowFullRPS: r.SlowFullRate, RuleSlowFullRPS: r.RuleSlowFullRate,
			Streams: p.in.Streams, HTTP2Conns: r.HTTP2Conns, HTTP2GrownConns: r.HTTP2GrownConns, FileDescriptors: r.FileDescriptors, PortsPerAddress: r.PortsPerAddress,
			TotalRPS: p.in.Rate, TotalPlaces: r.Places * p.in.Replicas, TotalHTTP2Conns: r.HTTP2Conns * p.in.Replicas, TotalSlowFullRPS: r.SlowFullRate * float64(p.in.Replicas),
			Setting: name, Value: n, Now: p.current, Warnings: append([]string{}, p.warnings()...),
		}
	}
	return writeJSON(w, map[string]any{"waiting": plan[0].in.WaitingShare, "ssps": all})
}

// writeJSON prints v with indentation.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
