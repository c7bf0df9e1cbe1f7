package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/admin"
)

// completeTimeout bounds how long a shell waits for words.
const completeTimeout = 2 * time.Second

// completion completes words with the values that a label of the metrics has in the running adbuffer.
// Metrics need no token, so that completion works without one.
type completion struct {
	at     *admin.ClientOptions
	metric string
	label  string
	ofSSP  bool // only series of the SSP that the first argument names, if there is one
}

var (
	sspNames     = completion{metric: "adbuffer_pool_saturation_ratio", label: "ssp"}
	routeNames   = completion{metric: "adbuffer_requests_total", label: "route"}
	outcomeNames = completion{metric: "adbuffer_requests_total", label: "outcome"}
	endpoints    = completion{metric: "adbuffer_endpoint_requests_total", label: "endpoint", ofSSP: true}
)

// of returns c for the adbuffer that the flags at name.
func (c completion) of(at *admin.ClientOptions) completion {
	c.at = at
	return c
}

// words is cobra's function of a flag's completion. Without a running adbuffer there are none.
func (c completion) words(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	at := *c.at
	client, err := runningClient(&at)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	body, err := client.Get(ctx, "/metrics")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ssp := ""
	if c.ofSSP && len(args) > 0 {
		ssp = args[0]
	}
	return c.in(string(body), ssp, toComplete), cobra.ShellCompDirectiveNoFileComp
}

// in returns the words that begin with prefix, sorted. ssp is the SSP whose series count, "" for all.
func (c completion) in(metrics, ssp, prefix string) (words []string) {
	value := regexp.MustCompile(`[{,]` + c.label + `="([^"\\]*)"`)
	for line := range strings.Lines(metrics) {
		match := value.FindStringSubmatch(line)
		if match == nil || !strings.HasPrefix(line, c.metric+"{") || !strings.HasPrefix(match[1], prefix) {
			continue
		}
		if ssp == "" || strings.Contains(line, `ssp="`+ssp+`"`) {
			words = append(words, match[1])
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// first completes only the first argument.
func (c completion) first(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.words(cmd, args, toComplete)
}

// completeFlag completes the values of a flag of cmd.
func completeFlag(cmd *cobra.Command, flag string, c completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, c.words); err != nil {
		panic("BUG: " + err.Error())
	}
}

// yamlFiles completes the name of a configuration.
func yamlFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
