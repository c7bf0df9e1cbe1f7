package reload

import (
	"strings"

	"adbuffer/internal/config"
	"adbuffer/internal/route"
	"adbuffer/internal/ssp"
)

func newTable(routes []config.Route, ssps map[string]*ssp.SSP) *route.Table {
	table := make([]*route.Route, len(routes))
	for i := range routes {
		c := &routes[i]
		r := &route.Route{
			Name: c.Name, Mode: modes[c.Mode], ClientChoice: c.ClientChoice,
			NoAdOnError: c.OnError == config.OnErrorNoAd, NoAd: noAds[c.NoAd], VASTVersion: c.VASTVersion,
			TruncateIP: c.Privacy == config.PrivacyTruncateIP,
			Match: route.Match{
				Path: c.Match.Path, Host: strings.ToLower(c.Match.Host),
				Query: conditions(c.Match.Query), Header: conditions(c.Match.Header),
			},
		}
		for _, t := range c.SSPs {
			r.Targets = append(r.Targets, route.Target{SSP: ssps[t.Name], Weight: t.Weight, Timeout: t.Timeout, Secondary: t.Secondary})
		}
		table[i] = r
	}
	return route.NewTable(table)
}

func conditions(cs []config.Condition) []route.Condition {
	all := make([]route.Condition, len(cs))
	for i, c := range cs {
		all[i] = route.Condition{Name: c.Name, Value: c.Value}
	}
	return all
}

// The words of the configuration, as package route knows them.
var (
	modes = map[config.Mode]route.Mode{
		config.ModeSingle: route.Single, config.ModeSplit: route.Split, config.ModeWaterfall: route.Waterfall,
		config.ModeParallelFirst: route.ParallelFirst, config.ModeParallelAll: route.ParallelAll,
	}
	noAds = map[config.NoAd]route.NoAd{config.NoAdEmpty: route.NoAdEmpty, config.NoAdVAST: route.NoAdVAST}
)
