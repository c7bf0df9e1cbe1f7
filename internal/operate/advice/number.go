package advice

import (
	"fmt"
	"strconv"
	"time"
)

// Number formats a number for people: with three digits, separated thousands and no exponent.
func Number(v float64) string {
	if v > 0 && v < 0.01 {
		return "less than 0.01"
	}
	if v < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(float64(n)) + " " + noun + "s"
}

// millis formats seconds below 1 as milliseconds, and all others as seconds.
func millis(seconds float64) string {
	if seconds >= 1 {
		return Number(seconds) + " s"
	}
	return Number(1000*seconds) + " ms"
}

// rounded keeps the significant digits of a hold time.
func rounded(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond / 10).String()
	}
	return d.Round(time.Microsecond).String()
}
