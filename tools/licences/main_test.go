package main

import (
	"os"
	"testing"
)

func TestJudge(t *testing.T) {
	own, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		string(own): "",
		"MIT\n\nPermission is hereby granted, free of\n charge, to any person obtaining a copy of": "",
		"GNU GENERAL PUBLIC\nLICENSE Version 3":                                                    "general public license",
		"Mozilla Public License Version 2.0":                                                       "mozilla public license",
		"All rights reserved.":                                                                     "unknown text",
	} {
		if got := judge(text); got != want {
			t.Errorf("judge(%.30q) = %q, want %q", text, got, want)
		}
	}
}
