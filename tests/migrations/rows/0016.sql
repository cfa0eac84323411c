UPDATE SpoolOffset SET owner = 'proxy_of_shop';
