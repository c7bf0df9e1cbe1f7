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
	metric, label string
	ofSSP         bool // only series of the SSP that the first argument names, if there is one
}

var (
	sspNames     = completion{metric: "adbuffer_pool_saturation_ratio", label: "ssp"}
	routeNames   = completion{metric: "adbuffer_requests_total", label: "route"}
	outcomeNames = completion{metric: "adbuffer_requests_total", label: "outcome"}
	endpoints    = completion{metric: "adbuffer_endpoint_requests_total", label: "endpoint", ofSSP: true}
)

// of returns cobra's function of a completion from the adbuffer that the flags at name. Without a running
// adbuffer there are no words.
func (c completion) of(at *admin.ClientOptions) cobra.CompletionFunc {
	value := regexp.MustCompile("^" + c.metric + `\{(?:.*,)?` + c.label + `="([^"\\]*)"`)
	return func(cmd *cobra.Command, args []string, prefix string) (words []string, _ cobra.ShellCompDirective) {
		running := *at
		client, err := runningClient(&running)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		metrics, _ := client.Get(ctx, "/metrics") // nil after an error
		ssp := ""
		if c.ofSSP && len(args) > 0 {
			ssp = `ssp="` + args[0] + `"`
		}
		for line := range strings.Lines(string(metrics)) {
			if match := value.FindStringSubmatch(line); match != nil && strings.HasPrefix(match[1], prefix) && strings.Contains(line, ssp) {
				words = append(words, match[1])
			}
		}
		slices.Sort(words)
		return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
	}
}

// first is of for the first argument of a command alone.
func (c completion) first(at *admin.ClientOptions) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.of(at)(cmd, args, prefix)
	}
}

// completeFlag completes the values of a flag of cmd.
func completeFlag(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic("BUG: " + err.Error())
	}
}

// yamlFiles completes the name of a configuration.
func yamlFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
