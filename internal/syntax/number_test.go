package syntax

import "testing"

func TestNumbersAboveTheLimitAreTheLimit(t *testing.T) {
	for v, want := range map[string]int{
		"0": 0, "00": 0, "99999999999": 99999999999, "1152921504606846975": MaxNumber - 1, "1152921504606846976": MaxNumber,
		"1152921504606846977": MaxNumber, "9223372036854775808": MaxNumber, "18446744073709551616": MaxNumber, "99999999999999999999999": MaxNumber,
	} {
		if n, ok := ParseNumber([]byte(v), MaxNumber); n != want || !ok {
			t.Errorf("%s: %d, %v", v, n, ok)
		}
		if n, ok := ParseNumber([]byte(v), 7); n != min(want, 7) || !ok {
			t.Errorf("%s, up to 7: %d, %v", v, n, ok)
		}
	}
}
