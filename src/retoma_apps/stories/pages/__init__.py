"""The pages of stories, `/storyboard/`: the list, one story, costs and local publications."""
