package reload

import (
	"slices"

	"adbuffer/internal/machine/overload"
	"adbuffer/internal/request/route"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

// mirrorDivisor makes the byte budget of each mirror an eighth of server.max_buffered_bytes.
const mirrorDivisor = 8

// newTable returns the table of routes. Mirrors that was has too keep their counters.
func newTable(cfg *config.Config, ssps map[string]*ssp.SSP, was *route.Table) *route.Table {
	routes := cfg.Routes
	table := make([]*route.Route, len(routes))
	for i := range routes {
		c := &routes[i]
		r := &route.Route{
			Name: c.Name, Mode: c.Mode, ClientChoice: c.ClientChoice,
			NoAdOnError: c.OnError == config.OnErrorNoAd, Masked: c.OnErrorStatus, NoAd: c.NoAd,
			MergeOpenRTB: c.Merge == config.MergeOpenRTB,
			TruncateIP:   c.Privacy == config.PrivacyTruncateIP, Priority: priorities[c.Priority], CORS: c.CORS,
			Match: route.Match{
				Path: c.Match.Path, Host: c.Match.Host,
				Query: slices.Clone(c.Match.Query), Header: c.Match.Header, // a clone, since the table modifies Query
				OpenRTB: BodyConditions(c.Match.OpenRTB), Holdback: c.Match.Holdback,
			},
		}
		for _, t := range c.SSPs {
			r.Targets = append(r.Targets, route.Target{SSP: ssps[t.Name], Weight: t.Weight, Timeout: t.Timeout, Secondary: t.Secondary, When: BodyConditions(t.When)})
		}
		if m := c.Mirror; m.SSP != "" {
			r.Mirror = &route.Mirror{SSP: ssps[m.SSP], Share: m.Share, Budget: new(exchange.Budget), Stats: mirrorStats(was, c.Name, m.SSP)}
			r.Mirror.Budget.SetLimit(int64(max(1, cfg.MaxBufferedBytes().Value/mirrorDivisor)))
		}
		table[i] = r
	}
	return route.NewTable(table)
}

func mirrorStats(was *route.Table, name, ssp string) *route.MirrorStats {
	if was != nil {
		for _, r := range was.Routes {
			if r.Name == name && r.Mirror != nil && r.Mirror.SSP.Name() == ssp {
				return r.Mirror.Stats
			}
		}
	}
	return new(route.MirrorStats)
}

// BodyConditions converts conditions on bodies, which validation has checked.
func BodyConditions(cs []config.BodyCondition) []openrtb.Condition {
	all := make([]openrtb.Condition, len(cs))
	for i, c := range cs {
		if c.TCF != nil {
			all[i] = openrtb.Condition{TCF: &c.TCF.Requirement, Not: c.TCF.Denies()}
			continue
		}
		all[i] = openrtb.Condition{
			Path: openrtb.MustParsePath(c.Path), Values: bodyValues(slices.Concat(c.In, c.NotIn)),
			Not: c.NotIn != nil || c.Exists != nil && !*c.Exists,
		}
	}
	return all
}

func bodyValues(list []config.JSONValue) []openrtb.Value {
	all := make([]openrtb.Value, len(list))
	for i, text := range list {
		v, err := openrtb.ParseValue([]byte(text))
		if err != nil {
			panic("BUG: a value of a valid configuration: " + err.Error())
		}
		all[i] = v
	}
	return all
}

// priorities translates the words of the configuration.
var priorities = map[config.Priority]overload.Priority{
	config.PriorityCritical: overload.Critical, config.PriorityNormal: overload.Normal, config.PrioritySheddable: overload.Sheddable,
}
