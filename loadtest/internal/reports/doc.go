// Package reports is the load tests that make a report. Some repeat what others measured
// by hand before adbuffer existed, and print their figures beside ours: ratios compare,
// absolute figures do not. Some run adbuffer beside its competitors. The rest put
// adbuffer into trouble, and say in words whether its promises held.
package reports
