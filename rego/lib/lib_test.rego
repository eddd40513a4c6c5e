# Tests of helpers only; what packs decide is tested by their cases.
package sluicegate.lib_test

import data.sluicegate.lib

test_digits_are_a_whole_number if {
	lib.digits("0")
	lib.digits("1790000000000000000")
}

test_nothing_else_is_digits if {
	every text in ["", " 1", "1 ", "-1", "+1", "1.0", "1e3", "0x1", "١", 7, null, ["1"]] { not lib.digits(text) }
}

test_data_path_is_the_first_field_that_declares if {
	pods := [{"path": "spec", "datasets": [{"name": "a", "path": "z"}, {"name": "a", "path": "b"}], "segments": []}]
	lib.data_path("spec", "dataset", "a") == "b" with input.facts.pods as pods
	lib.data_path("spec", "segment", "a") == "spec" with input.facts.pods as pods
	lib.data_path("other", "dataset", "a") == "other" with input.facts.pods as pods
}

test_pod_name_is_the_first_of_its_path if {
	pods := [{"path": "a", "name": "y"}, {"path": "a", "name": "x"}, {"path": "b", "name": "z"}]
	lib.pod_name("a") == "x" with input.facts.pods as pods
	lib.pod_name("b") == "z" with input.facts.pods as pods
	lib.pod_name("c") == "c" with input.facts.pods as pods
}

test_what_stands_behind_something_is_not_shown if {
	lib.shown({"name": "a"}) == "a"
	lib.shown({"name": "a", "via": ""}) == "a"
	lib.shown({"name": "a", "via": "PersistentVolume pv"}) == "(of PersistentVolume pv)"
}
