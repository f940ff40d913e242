from falloff.report.markdown import markdown_table


def test_a_table_has_a_line_for_each_row_and_a_bar_does_not_end_a_cell() -> None:
    assert markdown_table(("a", "b"), [(1, "x|y")]) == "| a | b |\n| --- | --- |\n| 1 | x/y |\n"
