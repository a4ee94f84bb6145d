// Command policycheck answers which requests a policy allows, as a MinIO server would.
//
// It reads {"policies": [...], "requests": [{"action": ..., "bucket": ..., "key": ..., "prefix": ...}]}
// from standard input, and prints a list of booleans. Several policies count together, as those
// attached to one user do.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/minio/pkg/v3/policy"
)

type question struct {
	Policies []json.RawMessage `json:"policies"`
	Requests []request         `json:"requests"`
}

type request struct {
	Action string `json:"action"`
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	Prefix string `json:"prefix"`
}

func main() {
	if err := answer(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func answer() error {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	attached := []policy.Policy{}
	for _, text := range asked.Policies {
		parsed, err := policy.ParseConfig(bytes.NewReader(text))
		if err != nil {
			return err
		}
		attached = append(attached, *parsed)
	}
	merged := policy.MergePolicies(attached...)
	allowed := []bool{}
	for _, each := range asked.Requests {
		allowed = append(allowed, merged.IsAllowed(policy.Args{
			AccountName:     "user",
			Action:          policy.Action(each.Action),
			BucketName:      each.Bucket,
			ObjectName:      each.Key,
			ConditionValues: map[string][]string{"prefix": {each.Prefix}},
		}))
	}
	return json.NewEncoder(os.Stdout).Encode(allowed)
}
